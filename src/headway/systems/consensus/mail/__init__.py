"""Reading mail: archives, messages, texts and threads. Nothing here knows of Headway."""
