"""`murmurate serve`: the three processes of a service.

    private   readings in, the operator's page       reads the state and the landing
    worker    aggregate, release, purge              reads everything, and holds the keys
    public    prices out                             reads the public log, and nothing else

To run each process under another user, start three services with --only. Each has its own module, which loads what that
process needs: the public one runs without SciPy, OpenDP and PyArrow.
"""
