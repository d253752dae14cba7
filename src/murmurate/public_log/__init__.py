"""The format of the public log: records, chains and signatures. A reader in another language needs only this.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
