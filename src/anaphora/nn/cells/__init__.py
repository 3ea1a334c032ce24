"""The cells of the lectures, each as its equations."""
