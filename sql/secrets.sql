-- AddSealKey stores the key that encrypts secrets, if there is none.
-- name: AddSealKey :exec
INSERT INTO seal_keys (key) VALUES (@key) ON CONFLICT (one_row) DO NOTHING;

-- ReadSealKey returns the key that encrypts secrets.
-- name: ReadSealKey :one
SELECT k.key FROM seal_keys k;

-- PutSecret creates or replaces a secret.
-- name: PutSecret :exec
INSERT INTO secrets (namespaces, name, value)
VALUES (@namespaces, @name, @value)
ON CONFLICT (name, namespaces) DO UPDATE
   SET value = excluded.value, created_by = session_user, updated_time = statement_timestamp();

-- ReadSecrets returns the secrets with a name.
-- name: ReadSecrets :many
SELECT s.namespaces, s.value
  FROM secrets s
 WHERE s.name = @name
 ORDER BY s.namespaces;

-- ListSecrets returns the secrets without their values, sorted by name. key_id identifies the key
-- that encrypted the value.
-- name: ListSecrets :many
SELECT s.name, s.namespaces, split_part(s.value, ':', 2) AS key_id, s.created_by, s.updated_time
  FROM secrets s
 ORDER BY s.name, s.namespaces LIMIT @lim::int;

-- ListEncrypted returns the namespaces, crons and sinks that contain encrypted values. key_id
-- identifies the key that encrypted such a value. An object has a row for each of its keys. name is
-- empty for a namespace.
-- name: ListEncrypted :many
SELECT 'namespace' AS kind, n.namespace, ''::text AS name, sealed.by[1]::text AS key_id
  FROM namespaces n
 CROSS JOIN LATERAL regexp_matches(n.config::text, '[$][{]sealed:(\w+):', 'g') AS sealed(by)
 UNION
SELECT 'cron', p.namespace, substr(p.process_id, 7), sealed.by[1]
  FROM namespaces n
  JOIN processes p
    ON p.namespace = n.namespace
   AND p.process_id >= '~cron/'
   AND p.process_id < '~cron0'
 CROSS JOIN LATERAL regexp_matches(encode(p.aux_state, 'escape'), '[$][{]sealed:(\w+):', 'g')
            AS sealed(by)
 UNION
SELECT 'sink', k.namespace, k.sink_id, sealed.by[1]
  FROM sinks k
 CROSS JOIN LATERAL regexp_matches(k.secrets::text, '[$][{]sealed:(\w+):', 'g') AS sealed(by)
 ORDER BY 2, 1, 3, 4 LIMIT @lim::int;

-- ListEncryptedHeaders returns the headers of namespaces and crons, and the fields of sinks, whose
-- values are encrypted. key_id identifies the key. name is empty for a namespace. A cron stores its
-- definition as a protobuf message, in which a header is a field 1 (0x0a) with its length, and its
-- value a field 2 (0x12).
-- name: ListEncryptedHeaders :many
SELECT 'namespace' AS kind, n.namespace, ''::text AS name, sealed.by[1]::text AS header,
       sealed.by[2]::text AS key_id
  FROM namespaces n
 CROSS JOIN LATERAL regexp_matches(n.config::text, '"([^"]+)": ?"[$][{]sealed:(\w+):', 'g')
            AS sealed(by)
 UNION
SELECT 'cron', p.namespace, substr(p.process_id, 7), sealed.by[1], sealed.by[2]
  FROM namespaces n
  JOIN processes p
    ON p.namespace = n.namespace
   AND p.process_id >= '~cron/'
   AND p.process_id < '~cron0'
 CROSS JOIN LATERAL regexp_matches(encode(p.aux_state, 'escape'),
                                   '\x0a.([^\x0a\x12]+)\x12.{1,5}[$][{]sealed:(\w+):', 'g')
            AS sealed(by)
 UNION
SELECT 'sink', k.namespace, k.sink_id, sealed.by[1], sealed.by[2]
  FROM sinks k
 CROSS JOIN LATERAL regexp_matches(k.secrets::text,
                                   '"([^"]+)": ?\[?"[$][{]sealed:(\w+):', 'g') AS sealed(by)
 ORDER BY 2, 1, 3, 4, 5 LIMIT @lim::int;

-- RemoveSecret deletes a secret.
-- name: RemoveSecret :execrows
DELETE FROM secrets
 WHERE name = @name
   AND namespaces = @namespaces;
