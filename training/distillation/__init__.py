"""What a teacher leaves for its student: answers, and the flags that name them."""
