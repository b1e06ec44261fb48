"""Events about policies and packets: their words and their pace (`plan.py`), and who gets them (`work.py`)."""
