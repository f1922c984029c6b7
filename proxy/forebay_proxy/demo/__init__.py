"""`forebay demo`: an old producer's load on an embedded cluster, directly and through Forebay."""
