"""Reading a log: file formats, columns, values, staging, and the lines that errors name."""
