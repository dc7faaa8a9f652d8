/* libnvidia-ml.so.1 beside driver.c: there, and it knows nothing. */
const char *nvmlErrorString(int error);
int nvmlInit_v2(void);

enum { NOT_SUPPORTED = 3 };

__attribute__((visibility("default"))) const char *nvmlErrorString(int error)
{
    return error == NOT_SUPPORTED ? "not supported" : "an error";
}

__attribute__((visibility("default"))) int nvmlInit_v2(void)
{
    return NOT_SUPPORTED;
}
