from murmurate.lab.paper.leakage_figure import write_leakage_figure


def test_the_figure_of_leakage_is_drawn(tmp_path):
    write_leakage_figure(tmp_path / "leakage.png")
    assert (tmp_path / "leakage.png").stat().st_size > 50_000
