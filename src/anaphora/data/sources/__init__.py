"""One `Table` under all data: rows of chosen columns, whatever they come from.

`open_source` looks at what it is given (a path, an embedded corpus, a data frame, dictionaries, pairs) and makes a
`Sheet` of it: named columns and rows in order. Roles then choose columns, and the rows that can be used become a
`Table`, which is numbered, readable in any order and able to say what it is. A file format is one module in `formats`.
"""
