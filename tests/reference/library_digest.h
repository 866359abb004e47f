/* Made by tests/reference/make_library_digest.py; do not edit. */
#define REF_DIGEST_MLP  "46502b1561ca7835f55f7d4166fee1b2ced663114162ab796ff19d13ce4fd7ab"
#define REF_DIGEST_GRID "15bfc41a42deb174e506d53c93b42896bf634b125e747215031cb40368b68a59"
#define REF_DIGEST_RBF  "be0e7fb7f4ae0e22c384384058f17b24a8c12c7f438791c0279370b349b7414b"
