-- From this version on state and open hold records of format 2: a grant with each reservation, and pauses. Those of format 1 are read, and written anew
-- when they change. The tables are the same; the number keeps programs away that know format 1 only.
SELECT 1;
