-- +goose Up
ALTER TABLE grants VALIDATE CONSTRAINT grants_role_check;

-- +goose Down
SELECT;
