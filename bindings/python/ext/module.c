#include "ext.h"
#include "ucp.h"

PyTypeObject *add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromSpec(spec);

    if (type != NULL && PyModule_AddObjectRef(module, name, type) < 0) {
        Py_CLEAR(type);
    }
    return (PyTypeObject *)(void *)type;
}

PyMODINIT_FUNC PyInit__core(void)
{
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "hawser._core", .m_size = -1};
    PyObject *m = PyModule_Create(&definition);

    if (m == NULL || PyModule_AddFunctions(m, functions) < 0 ||
        PyModule_AddFunctions(m, rma_functions) < 0 ||
        PyModule_AddFunctions(m, address_functions) < 0 ||
        PyModule_AddFunctions(m, plan_functions) < 0 ||
        PyModule_AddFunctions(m, query_functions) < 0 || errors_import() < 0 ||
        memory_import() < 0 || loop_import() < 0 || op_import(m) < 0 || buffer_import(m) < 0 ||
        worker_import(m) < 0 || endpoint_import(m) < 0 || ucp_import(m) < 0 ||
        multi_import(m) < 0) {
        Py_XDECREF(m);
        return NULL;
    }
    return m;
}
