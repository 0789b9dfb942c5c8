"""Files of measurements: JSON with a line per record, so that a changed record is a changed line."""
import json


def is_table(value):
    """Whether a list or an object holds nothing but objects: its records."""
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return bool(values) and all(isinstance(each, dict) for each in values)


def lines(value, depth):
    """One line per item; the values of an object may be tables, with a line per record."""
    is_object = isinstance(value, dict)
    items = value.items() if is_object else enumerate(value)
    begin, end = "{}" if is_object else "[]"
    texts = [" " * depth + (json.dumps(key) + ": " if is_object else "") +
             (lines(item, depth + 1) if depth == 1 and not is_table(value) and is_table(item) else json.dumps(item))
             for key, item in items]
    return begin + "\n" + ",\n".join(texts) + "\n" + " " * (depth - 1) + end


def write_records(path, records):
    """Writes a table of records, or an object that has such tables among its values."""
    with open(path, "w") as file:
        file.write(lines(records, 1) + "\n")
