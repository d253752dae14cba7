"""Files of readings as they come from a head-end or a download portal, turned into the one form that murmurate reads.

read a file as rows (`table_files`)  ->  find its columns (`columns`)  ->  parse cells (`local_time`, `cell_values`)
->  spool by meter (`reading_spool`)  ->  merge and resample (`merge`, `resample`)  ->  write (`output_files`)

Private: this package may change in any version. The public interface is `import murmurate as mm`.
"""
