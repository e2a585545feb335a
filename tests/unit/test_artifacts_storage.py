"""Where model files may lie: never under /home, whatever road leads there."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest

from dgr_build import workspace
from dgr_build.artifacts import storage
from dgr_build.artifacts.manifest import load, manifest_of
from dgr_build.artifacts.storage import Mount, check_model_path, models_root, read_mounts
from dgr_build.errors import ArtifactError


def _mount(point, *, root="/", device="8:1"):
    return Mount(device=device, root=PurePosixPath(root), point=PurePosixPath(point))


@pytest.fixture
def mounts(monkeypatch):
    table = []
    monkeypatch.setattr(storage, "read_mounts", lambda: tuple(table))
    return table


@pytest.mark.parametrize(
    "path", ["/home/me/m.gguf", "/home", "/var/../home/me/m.gguf", "/usr/../home/m.gguf"]
)
def test_paths_under_home_are_refused(path, tmp_path):
    with pytest.raises(ArtifactError) as caught:
        check_model_path(tmp_path / path)
    assert caught.value.exit_code == 9
    assert "DGR_MODELS" in caught.value.remedy


def test_links_are_followed(tmp_path):
    (tmp_path / "models").symlink_to("/home/me")
    with pytest.raises(ArtifactError):
        check_model_path(tmp_path / "models" / "m.gguf")
    (tmp_path / "chain").symlink_to(tmp_path / "models")
    with pytest.raises(ArtifactError):
        check_model_path(tmp_path / "chain" / "deep" / "m.gguf")


def test_a_linked_file_is_refused_like_a_linked_folder(tmp_path):
    (tmp_path / "m.gguf").symlink_to("/home/me/m.gguf")
    for reader in (manifest_of, load):
        with pytest.raises(ArtifactError) as caught:
            reader(tmp_path / "m.gguf")
        assert "/home/me/m.gguf" in caught.value.cause


def test_a_loop_of_links_is_refused(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    try:
        real = check_model_path(tmp_path / "a" / "m.gguf")
    except ArtifactError:
        return
    assert not real.exists()


@pytest.mark.parametrize("path", ["home/m.gguf", "homes/m.gguf", "a/home/b/m.gguf"])
def test_other_folders_called_home_are_fine(tmp_path, path):
    assert check_model_path(tmp_path / path) == tmp_path / path


def test_a_bind_mount_of_a_home_folder_is_refused(mounts):
    mounts += [_mount("/"), _mount("/models", root="/home/me/models")]
    with pytest.raises(ArtifactError) as caught:
        check_model_path(Path("/models/m.gguf"))
    assert "/home/me/models/m.gguf" in caught.value.cause


def test_a_bind_mount_of_a_home_on_its_own_file_system_is_refused(mounts):
    mounts += [_mount("/"), _mount("/home", device="8:2"), _mount("/models", root="/me/models", device="8:2")]
    with pytest.raises(ArtifactError):
        check_model_path(Path("/models/m.gguf"))


def test_a_home_bound_into_a_container_is_refused(mounts):
    mounts += [_mount("/", device="0:50"), _mount("/models", root="/home/me/models")]
    with pytest.raises(ArtifactError):
        check_model_path(Path("/models/m.gguf"))


def test_a_folder_from_elsewhere_bound_into_home_stays_fine_at_its_own_place(mounts):
    mounts += [_mount("/"), _mount("/home/me/data", root="/data")]
    assert check_model_path(Path("/data/m.gguf")) == Path("/data/m.gguf")
    with pytest.raises(ArtifactError):
        check_model_path(Path("/home/me/data/m.gguf"))


def test_the_uppermost_of_stacked_mounts_counts(mounts):
    mounts += [_mount("/"), _mount("/models", root="/home/me"), _mount("/models", device="8:9")]
    assert check_model_path(Path("/models/m.gguf"))


def test_mount_points_with_spaces_are_read(tmp_path):
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 8:1 /home/me/my\\040models /mnt/my\\040models rw - ext4 /dev/sda1 rw\n"
    )
    mounts = read_mounts(table)
    assert mounts[1].point == PurePosixPath("/mnt/my models")
    assert mounts[1].root == PurePosixPath("/home/me/my models")
    assert read_mounts(tmp_path / "absent") == ()


def test_the_models_root_is_made_private(tmp_path, monkeypatch):
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "models"))
    assert models_root() == tmp_path / "models"
    assert (tmp_path / "models").stat().st_mode & 0o777 == 0o700


def test_the_default_models_root_names_its_owner(monkeypatch):
    monkeypatch.delenv("DGR_MODELS", raising=False)
    assert workspace.models_root().name == f"dgr-models-{os.getuid()}"


def test_a_models_root_that_is_a_link_is_refused(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "link"))
    with pytest.raises(ArtifactError) as caught:
        models_root()
    assert "DGR_MODELS" in caught.value.remedy


def test_a_models_root_of_somebody_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "models"))
    models_root()
    monkeypatch.setattr(storage.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ArtifactError) as caught:
        models_root()
    assert "belongs to" in caught.value.cause


def test_a_models_root_that_others_can_write_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "models"))
    models_root().chmod(0o777)
    with pytest.raises(ArtifactError) as caught:
        models_root()
    assert "chmod" in caught.value.remedy


def test_a_models_root_under_home_is_refused(monkeypatch):
    monkeypatch.setenv("DGR_MODELS", "/home/me/models")
    with pytest.raises(ArtifactError):
        models_root()


def test_a_models_root_that_is_a_file_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("DGR_MODELS", str(tmp_path / "file"))
    with pytest.raises(ArtifactError):
        models_root()
