"""What only a CUDA card can show, in one command: tests/gpu/run.sh. A CPU runs the same code, on less memory."""
