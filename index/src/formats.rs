//! Every wire format of tool definitions, in and out. Pure functions over bytes and values.
