"""Plans: read a zone file, search the noise, prove the promises, check changes of plan. All data here is public.

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
