"""Text: tokens, sentences, chunks and words. It knows nothing of mail or of Headway."""
