"""What runs beside each SuperNode: it answers for the clients of the machine's own file, which `--node-config` names."""

from kinfolk.flower import client_app

app = client_app()
