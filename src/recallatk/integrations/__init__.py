"""Other people's training loops: one file for each framework, imported by the user together with it."""
