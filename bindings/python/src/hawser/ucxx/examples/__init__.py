"""Examples of UCXX: basic, and python_future_task_example with the application that it is about."""
