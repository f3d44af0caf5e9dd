-- The statements of the store, by name. The blocks are read by statements.py.

-- open
INSERT INTO batches (batch_id, header, state, created_at_s) VALUES (:batch_id, :header, 'running', :now_s);

-- batch
SELECT * FROM batches WHERE batch_id = :batch_id;

-- running
SELECT * FROM batches WHERE state = 'running' ORDER BY number;

-- newest
SELECT * FROM batches WHERE (created_at_s, batch_id) < (:before_s, :before_id)
ORDER BY created_at_s DESC, batch_id DESC LIMIT :limit;

-- add
INSERT INTO items (batch, position, item_id, payload) VALUES (?, ?, ?, ?) ON CONFLICT (batch, item_id) DO NOTHING;

-- known
SELECT 1 FROM items WHERE batch = :batch AND item_id = :item_id;

-- received
UPDATE batches SET received = received + :items, stored_bytes = stored_bytes + :bytes WHERE number = :batch;

-- take
SELECT position, item_id, payload FROM items
WHERE batch = :batch AND position > :after_position AND outcome IS NULL ORDER BY position LIMIT :limit;

-- finish
UPDATE items SET payload = NULL, outcome = :failed, content = :content, sequence = :sequence
WHERE batch = :batch AND position = :position AND outcome IS NULL;

-- payload_bytes
SELECT coalesce(length(payload), 0) FROM items WHERE batch = :batch AND position = :position AND outcome IS NULL;

-- number
UPDATE items SET sequence = :sequence WHERE batch = :batch AND position = :position;

-- finished
UPDATE batches SET succeeded = succeeded + :succeeded, failed = failed + :failed, numbered = :numbered,
    stored_bytes = stored_bytes + :bytes
WHERE number = :batch;

-- early
SELECT position FROM items WHERE batch = :batch AND position >= :numbered AND outcome IS NOT NULL AND sequence IS NULL;

-- outcomes
SELECT position, item_id, outcome, content, sequence FROM items
WHERE batch = :batch AND sequence > :after_sequence ORDER BY sequence LIMIT :limit;

-- complete
UPDATE batches SET complete = 1 WHERE number = :batch;

-- end
UPDATE batches SET state = :state, complete = 1, ended_at_s = :ended_at_s, expires_at_s = :expires_at_s,
    cancelled = received - succeeded - failed, numbered = :numbered
WHERE number = :batch;

-- expired
SELECT number FROM batches WHERE state != 'running' AND expires_at_s <= :now_s ORDER BY number LIMIT 1;

-- forget_items
DELETE FROM items WHERE rowid IN (SELECT rowid FROM items WHERE batch = :batch LIMIT :limit);

-- forget_batch
DELETE FROM batches WHERE number = :batch;
