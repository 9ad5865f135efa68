//! The whole system, tested through its public doors with real processes: see `it/`. `run` runs every test of the workspace.
