"""From recordings to transcripts."""
