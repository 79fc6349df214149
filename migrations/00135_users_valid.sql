-- +goose Up
ALTER TABLE grants VALIDATE CONSTRAINT grants_principal_check;

-- +goose Down
SELECT;
