"""How an evaluation is measured on the node; `tasks/steps/eval.py` puts it together from these files."""
