"""Ways to learn one thing: a vector for each word, from the words it is seen with."""
