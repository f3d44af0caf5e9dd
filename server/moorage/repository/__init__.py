"""What is on disk: manifests (model.toml), version folders, and the names that clients may use for them."""
