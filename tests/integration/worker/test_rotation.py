"""Keys are read again: a rotation under a running worker costs no price."""

from tests.support.interval_workers import GRACE_S

from murmurate.commands.rotate import rotate_keys
from murmurate.service.keyring import add_signing_key, load_keyring


def test_a_rotation_between_two_intervals_costs_no_price(worker_setup):
    worker_setup.release(0)
    keys = worker_setup.root / "keys"
    assert rotate_keys(worker_setup.state_dsn, worker_setup.log_dsn, keys) == 0
    worker_setup.release(1, 2)
    assert worker_setup.kinds() == ["measured"] * 3
    assert len(load_keyring(keys).signers) == 2


def test_a_rotation_in_the_middle_of_a_release_costs_no_price(worker_setup, monkeypatch):
    worker_setup.report(0)
    context = worker_setup.worker.context
    real = context.desired_states

    def rotated_meanwhile(*given, **options):
        desired = real(*given, **options)
        if len(load_keyring(worker_setup.root / "keys").signers) == 1:
            assert rotate_keys(worker_setup.state_dsn, worker_setup.log_dsn, worker_setup.root / "keys") == 0
        return desired

    monkeypatch.setattr(
        type(context), "desired_states", lambda _, *given, **options: rotated_meanwhile(*given, **options)
    )
    worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == ["measured"]


def test_a_damaged_key_beside_those_in_use_costs_no_price(worker_setup):
    worker_setup.report(0)
    (worker_setup.root / "keys" / "signing-002.key").write_text("no digits")
    worker_setup.at(0, GRACE_S)
    assert worker_setup.kinds() == ["measured"]
    assert "keys not read" in worker_setup.events()
    (worker_setup.root / "keys" / "signing-002.key").unlink()
    add_signing_key(worker_setup.root / "keys")
    worker_setup.release(1)
    assert worker_setup.kinds() == ["measured", "measured"]
