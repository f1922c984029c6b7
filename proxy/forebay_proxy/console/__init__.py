"""What people see at the admin address: the page, the API that it reads, and an hour of history."""
