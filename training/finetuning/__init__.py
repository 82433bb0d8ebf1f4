"""Fine-tuning: the contract of a task, and the runs, searches and reports around it."""
