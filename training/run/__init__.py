"""What all trainings share: flags and checks, devices, the loop and its reports."""
