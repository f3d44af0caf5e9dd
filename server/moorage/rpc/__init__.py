"""The edge: the only room with grpc and protobuf."""
