-- Two connected endpoints of one worker, and what takes the events of both: a function of the module and of a context's options.
return function(hawser, options)
    local pair = {context = assert(hawser.context_open(options)), queue = assert(hawser.queue_open())}
    local sink, events = {queue = pair.queue}, {}
    pair.worker = assert(hawser.worker_open(pair.context, {sink = sink}))
    pair.listener = assert(hawser.listen(pair.worker, "127.0.0.1", 0, {sink = sink, endpoint_sink = sink}))
    local port = hawser.listener_query(pair.listener).port
    local _
    _, pair.client = assert(hawser.connect(pair.worker, "127.0.0.1", port, nil, sink))

    function pair.take(wanted)
        for _ = 1, 600 do
            for i, event in ipairs(events) do
                if wanted(event) then return table.remove(events, i) end
            end
            local n, more = assert(hawser.queue_pop(pair.queue, 64, 100000000))
            assert(n == #more)
            table.move(more, 1, n, #events + 1, events)
        end
        error "the event did not come"
    end
    function pair.of_kind(kind) return function(event) return event.kind == kind end end

    pair.server = pair.take(pair.of_kind(hawser.EVENT_ACCEPTED)).source
    pair.take(pair.of_kind(hawser.EVENT_CONNECT))
    return pair
end
