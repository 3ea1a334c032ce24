"""Sound and what is made of it: reading files, resampling, features, augmentation, and lists of recordings."""
