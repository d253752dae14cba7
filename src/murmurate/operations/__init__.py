"""What several commands share: options, what they print, files of plans, logs and samples, publishing.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
