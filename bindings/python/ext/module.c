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

/* A module that is created anew. */
static PyObject *create(void)
{
    /* No size of -1: other interpreters would get a copy of the module, and nobody would be asked. */
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "hawser._core", .m_size = 0};
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

/* Types, exceptions and functions of Python are kept once for the process, and belong to the interpreter that they
 * come from: another one would be given its objects, and go on using them when that one is gone. */
PyMODINIT_FUNC PyInit__core(void)
{
    static PyObject *module; /* of the main interpreter, whose id is 0 */

    if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
        PyErr_SetString(PyExc_ImportError,
                        "hawser works in the main interpreter only, not in a subinterpreter");
        return NULL;
    }
    if (module == NULL) {
        module = create();
    }
    return Py_XNewRef(module);
}
