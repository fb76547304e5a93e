"""The paper's tables: plan.py says what is run, table.py reads what came out, grids.py puts it into words, report.py
and page.py write it down."""
