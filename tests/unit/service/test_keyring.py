"""The folder of keys: signing keys, and no key that could turn a record into a demand."""

import pytest

from murmurate.errors import MurmurateError
from murmurate.service.keyring import add_signing_key, create_keyring, load_keyring


def test_a_new_folder_holds_a_signing_key_and_nothing_else(tmp_path):
    made = create_keyring(tmp_path / "keys")
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["signing-001.key"]
    assert load_keyring(tmp_path / "keys").newest_signer.public_key == made.newest_signer.public_key


def test_a_folder_with_keys_gets_no_second_set(tmp_path):
    made = create_keyring(tmp_path)
    assert [signer.public_key for signer in create_keyring(tmp_path).signers] == [made.newest_signer.public_key]
    added = add_signing_key(tmp_path)
    assert load_keyring(tmp_path).newest_signer.public_key == added.public_key


@pytest.mark.parametrize("kept", ["00" * 32, "no digits", ""])
def test_a_folder_that_still_has_an_input_key_loads_and_the_file_is_ignored(tmp_path, kept):
    made = create_keyring(tmp_path)
    (tmp_path / "input.key").write_text(kept, encoding="ascii")
    assert [signer.public_key for signer in load_keyring(tmp_path).signers] == [made.newest_signer.public_key]


def test_a_folder_without_a_signing_key_is_refused(tmp_path):
    (tmp_path / "input.key").write_text("00" * 32, encoding="ascii")
    with pytest.raises(MurmurateError, match="must hold a signing key; murmurate init makes one"):
        load_keyring(tmp_path)


def test_keys_load_under_the_names_that_systemd_gives_to_a_folder_of_credentials(tmp_path):
    made = create_keyring(tmp_path)
    added = add_signing_key(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(tmp_path / f"keys_{path.name}")  # LoadCredential=keys:FOLDER
    loaded = [signer.public_key for signer in load_keyring(tmp_path).signers]
    assert loaded == [made.newest_signer.public_key, added.public_key]
