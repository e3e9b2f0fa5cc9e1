"""Models: pure mathematics on blocks of rows.  One file a family."""
