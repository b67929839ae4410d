"""What runs beside the SuperLink: the methods of experiment.toml."""

from pathlib import Path

from kinfolk.flower import server_app

app = server_app(Path(__file__).with_name("experiment.toml"), machines=3)
