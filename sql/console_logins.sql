-- CreateLogin stores a login to the console. It deletes the former login of the browser if
-- former_hash is the hash of its secret, and the oldest logins of the user, so that at most keep
-- others remain. It returns the deleted logins.
-- name: CreateLogin :many
WITH former AS (
  SELECT x.login_id
    FROM console_logins x
   WHERE x.login_id = @former_id
     AND x.secret_hash = @former_hash),
others AS (
  SELECT x.login_id,
         row_number() OVER (ORDER BY x.created_time DESC, x.login_id) AS place
    FROM console_logins x
   WHERE x.principal = @principal
     AND x.login_id NOT IN (SELECT former.login_id FROM former)),
deleted AS (
  DELETE FROM console_logins l
   WHERE l.login_id IN (
     SELECT former.login_id
       FROM former
      UNION ALL
     SELECT others.login_id
       FROM others
      WHERE others.place > @keep::int)
  RETURNING l.login_id, l.created_time),
inserted AS (
  INSERT INTO console_logins (login_id, secret_hash, principal, group_names, expire_time)
  VALUES (@login_id, @secret_hash, @principal, @group_names,
          statement_timestamp() + (@lifetime_us::bigint) * interval '1 microsecond'))
SELECT deleted.login_id
  FROM deleted
 ORDER BY deleted.created_time, deleted.login_id;

-- ReadLogin returns a login and how long it is still valid, which is 0 or less if it has ended. If
-- secret_hash is correct and the login is valid, ReadLogin stores the time at which the login was
-- used, unless the age of the stored time is less than a minute and less than a tenth of idle_us.
-- name: ReadLogin :one
WITH used AS (
  UPDATE console_logins l
     SET used_time = statement_timestamp()
   WHERE l.login_id = @login_id
     AND l.secret_hash = @secret_hash
     AND l.expire_time > statement_timestamp()
     AND l.used_time > statement_timestamp() - (@idle_us::bigint) * interval '1 microsecond'
     AND l.used_time <= statement_timestamp()
           - LEAST(interval '1 minute', ((@idle_us::bigint) / 10) * interval '1 microsecond')
  RETURNING l.used_time)
SELECT l.secret_hash, l.principal, l.group_names,
       (1000000 * extract(epoch FROM
         LEAST(l.expire_time,
               GREATEST(l.used_time, (SELECT used.used_time FROM used))
                 + (@idle_us::bigint) * interval '1 microsecond')
           - statement_timestamp()))::bigint AS left_us
  FROM console_logins l
 WHERE l.login_id = @login_id;

-- DeleteLogin deletes a login. It returns no row if there is none.
-- name: DeleteLogin :one
DELETE FROM console_logins
 WHERE login_id = @login_id
RETURNING login_id;

-- ForgetLogins deletes logins that have expired, lim at a time, oldest first.
-- name: ForgetLogins :execrows
DELETE FROM console_logins l
 USING (
   SELECT x.login_id
     FROM console_logins x
    WHERE x.expire_time <= statement_timestamp()
    ORDER BY x.expire_time LIMIT @lim::int FOR UPDATE SKIP LOCKED) oldest
 WHERE l.login_id = oldest.login_id;

-- ListLogins returns the logins of a user, or of all users, that have not expired, newest first.
-- after_time and after_id are those of the last login of the previous page, or NULL and empty.
-- name: ListLogins :many
SELECT l.login_id, l.principal, l.created_time, l.used_time, l.expire_time
  FROM console_logins l
 WHERE l.expire_time > statement_timestamp()
   AND (@principal::text = ''
        OR l.principal = @principal)
   AND (sqlc.narg('after_time')::timestamptz IS NULL
        OR (l.created_time, l.login_id) < (sqlc.narg('after_time')::timestamptz, @after_id::text))
 ORDER BY l.created_time DESC, l.login_id DESC LIMIT @lim::int;

-- EndLogins deletes all logins of a user.
-- name: EndLogins :many
DELETE FROM console_logins
 WHERE principal = @principal
RETURNING login_id;
