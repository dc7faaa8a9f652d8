/* A module that calls the program when its destructors run: after those of the libraries loaded before it. */
void stub_late(void (*fn)(void));

static void (*call)(void);

void stub_late(void (*fn)(void))
{
    call = fn;
}

__attribute__((destructor)) static void end(void)
{
    if (call != 0) {
        call();
    }
}
