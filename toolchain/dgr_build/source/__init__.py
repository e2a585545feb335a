"""Source: obtains one llama.cpp commit from any provider and proves it object by object."""
