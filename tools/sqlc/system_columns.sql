-- Only read by sqlc, which does not know the system columns of PostgreSQL. Never run on a database.
ALTER TABLE processes ADD COLUMN ctid tid NOT NULL;
ALTER TABLE running ADD COLUMN ctid tid NOT NULL;
ALTER TABLE schedule ADD COLUMN ctid tid NOT NULL;
ALTER TABLE messages ADD COLUMN ctid tid NOT NULL;
ALTER TABLE parents ADD COLUMN ctid tid NOT NULL;
