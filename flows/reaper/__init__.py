"""The reaper: finds what is rented under our name and owned by nobody, takes it down, and says what that saves."""
