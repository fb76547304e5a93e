"""What `latchwork bench` measures, one file a question. Every figure is a ratio within one run."""
