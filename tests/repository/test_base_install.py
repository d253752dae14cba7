"""`pip install murmurate` without extras: small, quick to start, enough to check a log. The rest names its extra."""

import json
import os
import resource
import subprocess
import sys
import venv

import pytest

from murmurate.cli import COMMANDS
from murmurate.planning.release_terms import ReleaseTerms, compute_plan_digest
from tests.repository.repository_files import ROOT
from tests.support.sample_logs import ShardLog, copied_files, plan, write_tar

MAX_MB = 150

# What each command says in a base install: the package that is missing, and the extra that brings it. The commands
# without a row work.
WORKS = (*([*name.split(), "--help"] for name in COMMANDS), ["plan", "--example"])
NEEDS = {
    "step aggregate": (["--landing", "landing"], "psycopg", "service"),
    "log archive": (["archive"], "psycopg", "service"),
    "audit": (["plan.json"], "matplotlib", "lab"),
    "backtest": ([__file__, "--readings", __file__], "matplotlib", "lab"),
    "zone change": (["plan.json"], "psycopg", "service"),
    "client": (["list"], "psycopg", "service"),
    "zone close": (["harbour"], "psycopg", "service"),
    "demo": ([], "psycopg", "demo"),
    "evaluate": ([], "matplotlib", "lab"),
    "log export": (["log.tar"], "psycopg", "service"),
    "forecast": (["--h25", "3500"], "scipy", "plan"),
    "habits": (["sample.parquet", "--epsilon", "1"], "scipy", "plan"),
    "readings import": (["--example", "."], "scipy", "service"),
    "readings ingest": (["r.csv", "--landing", "landing", "--meters", "m.csv"], "psycopg", "service"),
    "zone open": (["plan.json"], "psycopg", "service"),
    "init": ([], "psycopg", "service"),
    "plan": (["zone.toml"], "scipy", "plan"),
    "step release": ([], "psycopg", "service"),
    "log repair": ([], "psycopg", "service"),
    "keys rotate": ([], "psycopg", "service"),
    "serve": (["service.toml"], "psycopg", "service"),
    "status": ([], "psycopg", "service"),
}

SMALLEST_COMMAND = """
import typer
app = typer.Typer()
@app.command()
def greet(name: str):
    \"\"\"Greet a person.\"\"\"
app()
"""

RUN_EACH = """
import contextlib, io, json, sys
from murmurate.cli import main
said = []
for arguments in json.load(sys.stdin):
    sys.argv, status, shown = ["murmurate", *arguments], 0, io.StringIO()
    with contextlib.redirect_stderr(shown), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            status = end.code or 0
    said.append([status, shown.getvalue()])
print(json.dumps(said))
"""

USE_PUBLIC_NAMES = """
import murmurate as mm, numpy as np
for name in mm.__all__:
    getattr(mm, name)
for use in (lambda: mm.SystemNoise().draw(mm.NoiseDistribution.LAPLACE, np.array([10.0])), lambda: mm.audit(None)):
    try:
        use()
    except mm.errors.MissingExtraError as error:
        print(error)
"""

pytestmark = [pytest.mark.network, pytest.mark.slow]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """The interpreter of an environment with the wheel and what it depends on, and nothing else."""
    folder = tmp_path_factory.mktemp("base")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, ROOT]
    subprocess.run([*pip, *built], check=True)
    venv.create(folder / "env")
    interpreter = folder / "env" / "bin" / "python"
    wheel = next(folder.glob("*.whl"))
    subprocess.run([*pip, "--python", interpreter, "install", wheel], env=without_settings(), check=True)
    return interpreter


def without_settings():
    """The environment variables of a new user: modules come from the install, and are compiled there."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command, **more):
    return subprocess.run(command, env=without_settings(), capture_output=True, text=True, check=False, **more)


def test_the_base_install_is_small(base, figure):
    packages = next(base.parents[1].glob("lib/python*/site-packages"))
    sizes = [(path.stat().st_size, path.suffix) for path in packages.rglob("*") if path.is_file()]
    size, compiled = sum(size for size, _ in sizes), sum(size for size, suffix in sizes if suffix == ".pyc")
    figure(f"base install: {size / 1e6:.0f} MB, of which {compiled / 1e6:.0f} MB are compiled modules")
    assert compiled > 0
    assert size < MAX_MB * 1e6
    assert not {"scipy", "opendp", "dp_accounting", "matplotlib"} & {path.name for path in packages.iterdir()}


def _work_of_children_s():
    """What the processor has worked for children that have ended, however busy the machine is [s]."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def work_s(*command):
    begin = _work_of_children_s()
    assert "Usage" in run(*command, "--help").stdout
    return _work_of_children_s() - begin


def test_help_is_quick(base, figure):
    """Little more work than the help of the smallest command made with the same library. The least of five each."""
    both = [(work_s(base.with_name("murmurate")), work_s(base, "-c", SMALLEST_COMMAND)) for _ in range(5)]
    ours, smallest = (min(seconds) for seconds in zip(*both, strict=True))
    figure(f"murmurate --help: {ours:.2f} core s, {ours / smallest:.2f} times a bare Typer command")
    assert ours < 1.8 * smallest


def forge(text):
    """The same plan with a tenth of its noise, and with the digest that belongs to it."""
    document = json.loads(text)
    document["scale_wh"] = [scale / 10 for scale in document["scale_wh"]]
    del document["digest"]
    return json.dumps(document | {"digest": compute_plan_digest(document)}, separators=(",", ":"))


def write_day(path, text):
    """A log of a day: 24 releases of three zones under a plan."""
    terms = ReleaseTerms.from_json(text)
    day = ShardLog(plan_digest=terms.plan_digest, terms={terms.plan_digest: terms}).release(times=24)
    return write_tar(path, copied_files(day, plans=(text,)))


@pytest.mark.parametrize(("is_forged", "status"), [(False, 0), (True, 1)])
def test_a_base_install_checks_all_of_a_log(base, tmp_path, is_forged, status):
    """A window with a delta: its proof composes releases. The report is that of a complete install."""
    text = plan("any 24 h: epsilon 1, delta 1e-6")
    write_day(tmp_path / "log.tar", forge(text) if is_forged else text)
    complete, small = (
        run(interpreter, "-m", "murmurate", "log", "verify", "log.tar", cwd=tmp_path)
        for interpreter in (sys.executable, base)
    )
    assert small.stdout == complete.stdout
    assert (small.returncode, complete.returncode) == (status, status), (small.stdout, small.stderr)
    assert ("too little for 'any 24 h: epsilon 1, delta 1e-06'" if is_forged else "Everything holds.") in small.stdout


def test_every_command_works_or_names_its_extra(base, tmp_path):
    assert set(NEEDS) | {"log verify", "prices"} == COMMANDS.keys()
    lines = [*WORKS, *([*name.split(), *arguments] for name, (arguments, _, _) in NEEDS.items())]
    done = run(base, "-c", RUN_EACH, input=json.dumps(lines), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [[0, ""]] * len(WORKS)
    said += [
        [2, f'murmurate: {module} is not installed: run pip install "murmurate[{extra}]"\n']
        for _, module, extra in NEEDS.values()
    ]
    assert dict(zip(map(" ".join, lines), json.loads(done.stdout), strict=True)) == dict(
        zip(map(" ".join, lines), said, strict=True)
    )
    assert not [*tmp_path.iterdir()]


def test_an_extra_is_installed_from_the_copy_of_the_repository_that_the_package_came_from(tmp_path):
    """Before a release no index has the name."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, tmp_path, ROOT], check=True, env=without_settings())
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from murmurate.extras import install_command as of"
    assert run(sys.executable, "-c", f"{code}; print(of('lab'))").stdout == f'pip install "{ROOT}[lab]"\n'


def test_every_public_name_loads_and_noise_and_audit_name_their_extra(base):
    done = run(base, "-c", USE_PUBLIC_NAMES)
    said = [f'{package} is not installed: run pip install "murmurate[plan]"' for package in ("opendp", "scipy")]
    assert done.stdout.splitlines() == said, done.stderr
