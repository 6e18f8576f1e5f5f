"""What must hold beyond the types of one file, said with line numbers before anything is paid for."""
