"""Draw noise and load what a service loads, under what MemoryDenyWriteExecute= of the systemd units refuses.

    python tests/support/noise_without_writable_code.py [MODULE ..]

The modules named are treated as not installed. Needs Linux 6.3.
"""

from __future__ import annotations

import ctypes
import importlib
import sys

PR_SET_MDWE, PR_GET_MDWE = 65, 66
MDWE_REFUSE_EXEC_GAIN = 1
LOADED = ("murmurate.service.worker.interval_worker", "psycopg", "pyarrow.parquet", "scipy.stats")


def is_supported() -> bool:
    """Return whether this system can refuse memory that is both writable and executable."""
    return sys.platform == "linux" and ctypes.CDLL(None).prctl(PR_GET_MDWE, 0, 0, 0, 0) >= 0


def main() -> None:
    for name in sys.argv[1:]:
        sys.modules[name] = None  # type: ignore[assignment]  # Python's own way to say that there is no such module
    if ctypes.CDLL(None).prctl(PR_SET_MDWE, MDWE_REFUSE_EXEC_GAIN, 0, 0, 0):
        raise SystemExit("the system does not know PR_SET_MDWE: needs Linux 6.3")
    for name in LOADED:
        importlib.import_module(name)
    import numpy as np  # noqa: PLC0415  like all others: after the memory is restricted

    from murmurate.privacy.noise import NoiseDistribution, SystemNoise, opendp_gaussian  # noqa: PLC0415
    from murmurate.public_log.signing import Ed25519Signer  # noqa: PLC0415

    scales = np.full(1000, 1000.0)
    cores = {NoiseDistribution.HUBER: np.full(1000, 100)}
    noise = [SystemNoise().draw(distribution, scales, cores.get(distribution)) for distribution in NoiseDistribution]
    opendp_gaussian(1000.0)
    signature = Ed25519Signer.generate().sign(b"signed")
    print(f"{sum(map(len, noise))} draws, a signature of {len(signature)} characters")  # noqa: T201


if __name__ == "__main__":
    main()
